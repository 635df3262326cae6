"""The server: python -m vllm_standin.serve --config FILE.yaml

It exits 2 for a wrong option, 1 when the engine cannot start, 0 after SIGTERM and also when its engine dies, as the real one does.
"""

import os
import signal
import subprocess
import sys
import threading

from vllm_standin.api import Server
from vllm_standin.generation import ROUTES
from vllm_standin.log import log
from vllm_standin.options import changed, parse, parser

FAULTS = ("", "refuse-start", "crash-at-start", "stall", "refuse-generation", "die-at-first-request", "garbage", "orphan")


def say(source, message):
    log("APIServer", source, message)


def start_engine(model):
    """Start the engine's process and return it with the end of the pipe on which it says that it is ready."""
    ready, pipe = os.pipe()
    command = [sys.executable, "-m", "vllm_standin.engine", model, str(pipe)]
    engine = subprocess.Popen(command, pass_fds=[pipe])
    os.close(pipe)
    return engine, ready


def serve(server, address):
    say("entry.py:140", f"Starting vLLM server on http://{address}")
    say("launcher.py:186", "Available routes are:")
    for path, (method, _) in server.routes.items():
        say("launcher.py:195", f"Route: {path}, Methods: {method}")
    server.server_activate()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for line in (f"Started server process [{os.getpid()}]", "Waiting for application startup.", "Application startup complete."):
        print(f"INFO:     {line}", file=sys.stderr, flush=True)


def leave_an_orphan():
    """Live on in a session of its own, with the server's port."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


def main():
    fault = os.environ.get("STANDIN_FAULT", "")
    if fault not in FAULTS:
        sys.exit(f"STANDIN_FAULT={fault}: write one of {', '.join(FAULTS[1:])}")
    if fault == "refuse-start":
        parser().error("unrecognized arguments: --no-such-option")
    options = parse(sys.argv[1:])
    say("api_utils.py:286", f"non-default args: {changed(options)}")
    server = Server(options, ROUTES, os.environ.get("VLLM_API_KEY"), fault)
    signal.signal(signal.SIGTERM, lambda *_: None)  # swallowed during the load
    engine, ready = start_engine(options.model)
    server.kill_engine = engine.kill
    try:
        if not os.read(ready, 5):
            code = engine.wait()
            raise RuntimeError(
                "Engine core initialization failed. See root cause above. Failed core proc(s): " + str({"EngineCore": code})
            )
        signal.signal(signal.SIGTERM, lambda *_: engine.terminate())
        if fault == "orphan" and not os.fork():
            leave_an_orphan()
        serve(server, f"{options.host or '0.0.0.0'}:{options.port}")
        engine.wait()
        say("launcher.py:254", "[shutdown] API server: shutdown triggered")
    finally:
        engine.kill()


if __name__ == "__main__":
    main()
