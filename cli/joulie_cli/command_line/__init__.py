"""What all command lines share: finding the commands, the parser, options of several commands.

Not here: the options of one command (`joulie_cli.run`, `ask`, `audit`, `admin`). Nothing large is
imported here.
In: the words of the command line. Out: the command and its parsed options.
"""
