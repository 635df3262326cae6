"""A stand-in for vLLM on test hosts that are too small for the real one: its log lines, endpoints, signals and exit codes.

Environment:
  STANDIN_LOAD_SECONDS  seconds that the load takes (default 2)
  STANDIN_FAULT         refuse-start: exit status 2, as for an option that only the start finds wrong
                        crash-at-start: exit status 1 after a second, with a traceback
                        stall: the log stops half-way through the load
                        refuse-generation: /health says 200, completions never answer
                        die-at-first-request: its engine dies, and the server ends with exit status 0
                        garbage: one token again and again
                        orphan: leaves a process that ignores SIGTERM and holds the port
"""

__version__ = "1.0.0"
