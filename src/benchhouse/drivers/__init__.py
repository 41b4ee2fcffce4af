"""Built-in drivers: each speaks one service's protocol for an experiment."""
