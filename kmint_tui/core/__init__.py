"""The core that the command line and the application share: planning, sessions, engines, saving.

No module here imports click, rich or Textual, the command line or the application.
"""
