"""The command line: parse, call `api`, print. One file a verb in `verbs/`; nothing is decided here."""
