# What kmint needs of llama.cpp: the model library and the CPU and GPU backends.
#
# The build of llama-cpp-python reads this file, named by its full path:
#     CMAKE_ARGS="-DCMAKE_PROJECT_INCLUDE=/full/path/of/llama.cmake" pip install llama-cpp-python
#
# Plain variables, because llama-cpp-python's own file forces the cache variable of the same name.

# Chat templates, argument parsers and a web client, for programs that kmint does not use.
set(LLAMA_BUILD_COMMON OFF)
# Images and sound.
set(LLAVA_BUILD OFF)
