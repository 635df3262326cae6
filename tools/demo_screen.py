"""The last screen of `make demo`: one real question, the numbers that were measured, and what to type next."""

import json
import statistics
import sys
import urllib.request
from pathlib import Path

import yaml

QUESTION = "What is the capital of France?"


def ask(url: str, model: str) -> str:
    body = {"model": model, "temperature": 0, "max_tokens": 32, "messages": [{"role": "user", "content": QUESTION}]}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=120) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def main(inventory: str, model: str) -> None:
    host = yaml.safe_load(Path(inventory, "hosts.yml").read_text())["gpu_hosts"]["hosts"]["demo"]
    models = yaml.safe_load(Path(inventory, "group_vars/gpu_hosts/models.yml").read_text())
    other = models["modelhost_served_model"]
    newest = max(Path("artifacts/demo/benchmarks", model).glob("*.json"))
    results = json.loads(newest.read_text())["points"][0]["results"]
    tpot, ttft = (statistics.median(each[key] for each in results) for key in ("mean_tpot_ms", "mean_ttft_ms"))
    url = f"http://{host['ansible_host']}:{models['modelhost_models'][model]['port']}"
    play = ".venv/bin/ansible-playbook -i inventory/demo"
    print(f"""
  {model} serves at {url}/v1

  asked     {QUESTION}
  answered  {ask(url, model)}
  measured  {1000 / tpot:.1f} tok/s decode, {ttft:.0f} ms to the first token
            (the median of {len(results)} repetitions; {newest})

  ask       curl {url}/v1/chat/completions -H 'Content-Type: application/json' \\
              -d '{{"model": "default", "messages": [{{"role": "user", "content": "{QUESTION}"}}]}}'
  switch    {play} playbooks/switch_model.yml -e model={other}
  state     {play} playbooks/status.yml
  log in    ssh -F .cache/testhost/{host['testhost_container']}.ssh_config {host['testhost_container']}
  stop      make demo-down
""")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
