"""The options of the server, where vLLM has them."""

from vllm_standin.options import declare as make_arg_parser  # noqa: F401


def validate_parsed_serve_args(args):
    if args.enable_auto_tool_choice and not args.tool_call_parser:
        raise TypeError("Error: --enable-auto-tool-choice requires --tool-call-parser")
