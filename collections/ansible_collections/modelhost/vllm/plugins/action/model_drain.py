# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

from ansible_collections.modelhost.vllm.plugins.plugin_utils.polling import PollingAction


class ActionModule(PollingAction):
    """The module of the same name, with its progress shown."""
