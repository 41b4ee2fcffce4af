"""Our experiments inside other systems: their requests go to our worker, and its measurements go back to them."""
