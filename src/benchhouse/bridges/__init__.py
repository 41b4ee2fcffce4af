"""Our experiments inside other systems: what they ask for goes to our worker, what it measured goes back to them."""
