# GNU General Public License v3.0+ (see LICENSE)
"""What a vLLM endpoint says."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils.systemd import parse_environment


class Endpoint:
    """The OpenAI-compatible server of one unit, asked on the host itself and never through a proxy."""

    def __init__(self, host: str, port: int, secret_file: str) -> None:
        # Every address includes the loopback one, through which the host asks itself.
        address = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        self.url = "http://{0}:{1}".format(f"[{address}]" if ":" in address else address, port)
        self._secret_file = secret_file
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(self, path: str, body: dict[str, Any] | None, timeout: float) -> tuple[int, Any]:
        """Status and JSON of one request; the text where it is not JSON. Raises OSError while nothing listens, or when time runs out."""
        headers = {"Content-Type": "application/json"}
        key = self._api_key()
        if key:
            headers["Authorization"] = f"Bearer {key}"
        data = None if body is None else json.dumps(body).encode()
        try:
            with self._opener.open(urllib.request.Request(self.url + path, data, headers), timeout=timeout) as response:
                status, text = response.status, response.read().decode("utf-8", "replace")
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode("utf-8", "replace")
        except http.client.HTTPException as error:
            raise OSError(f"no HTTP answer: {error!r}") from error
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    def served_names(self) -> list[str]:
        """The names that the server answers to, or none while it does not answer, or not as vLLM does."""
        try:
            status, body = self.ask("/v1/models", None, timeout=3)
            return [each["id"] for each in body["data"]] if status == 200 else []
        except (OSError, KeyError, TypeError):
            return []

    def max_model_len(self) -> int:
        """Tokens that the server takes, question and answer together; 0 where it does not say."""
        try:
            return int(self.ask("/v1/models", None, timeout=10)[1]["data"][0]["max_model_len"])
        except (OSError, LookupError, TypeError, ValueError):
            return 0

    def generated(self) -> float:
        """Tokens that the server has generated for anybody since its start; 0 where it does not say."""
        try:
            status, text = self.ask("/metrics", None, timeout=10)
        except OSError:
            return 0.0
        counts = re.findall(r"^vllm:generation_tokens_total(?:\{[^}]*\})? ([0-9.e+]+)$", str(text), re.MULTILINE)
        return sum(map(float, counts)) if status == 200 else 0.0

    def in_flight(self) -> int:
        """Requests that run or wait, over all engines of the server. Raises OSError where it does not say."""
        status, text = self.ask("/metrics", None, timeout=5)
        counts = re.findall(r"^vllm:num_requests_(?:running|waiting)(?:\{[^}]*\})? ([0-9.e+]+)$", str(text), re.MULTILINE)
        if status != 200 or not counts:
            raise OSError(f"{self.url}/metrics does not count requests: HTTP {status}")
        return round(sum(map(float, counts)))

    def generate(self, model: str, prompt: str, max_tokens: int, timeout: float) -> tuple[int, Any]:
        """One real generation at temperature 0."""
        messages = [{"role": "user", "content": prompt}]
        return self.ask(
            "/v1/chat/completions", {"model": model, "messages": messages, "max_tokens": max_tokens, "temperature": 0}, timeout)

    def _api_key(self) -> str:
        try:
            with open(self._secret_file, encoding="utf-8") as stream:
                return parse_environment(stream.read()).get("VLLM_API_KEY", "")
        except FileNotFoundError:
            return ""

