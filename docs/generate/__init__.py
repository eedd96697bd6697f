"""Makes the parts of README and docs that follow from the code or from measurements, and checks
the rest.

python -m docs.generate              write every generated page and block python -m docs.generate
--check      name the pages that are out of date; exit code 1 if there are any python -m
docs.generate.examples     run the commands that the pages print python -m docs.generate.words
name the messages and pages that break the rules of plain English
"""
