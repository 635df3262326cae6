"""The list of environment variables, as far as the stand-in or the units of modelhost have any."""

import os

environment_variables = {
    name: lambda name=name: os.environ.get(name)
    for name in ("VLLM_API_KEY", "VLLM_CACHE_ROOT", "VLLM_LOGGING_LEVEL", "VLLM_NO_USAGE_STATS", "VLLM_TARGET_DEVICE")
}
