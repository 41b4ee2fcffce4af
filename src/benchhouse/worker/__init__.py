"""What runs on the node: the input is a trial folder, the output is the same folder sealed with evidence."""
