"""What runs on the node: one trial folder in, the same folder sealed with evidence out."""
