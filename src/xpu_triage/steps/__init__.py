"""The three steps as pure functions: utilization, step time, operator bisection."""
