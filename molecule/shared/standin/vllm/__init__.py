"""Where vLLM has what an engine is asked about its options (engine_args_info); all else is vllm_standin."""
