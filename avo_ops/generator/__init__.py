"""From a definition to kernels: trace, derive, simplify, plan, schedule, emit, compile."""
