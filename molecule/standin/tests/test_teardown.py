"""Runs last, by its name: what teardown.yml takes away, and what it keeps."""


def test_teardown_keeps_weights_results_and_adopted_units_and_nothing_else(controller, host):
    controller.plays("switch_model")
    controller.plays("benchmark")
    controller.plays("check_coherence")
    controller.plays("teardown")
    left = host.check_output(
        "find / -xdev '(' -path /proc -o -path /sys -o -path /srv ')' -prune -o -path /var/lib/modelhost -prune -print "
        "-o -iname '*modelhost*' -print")
    assert left.split() == ["/var/lib/modelhost"]
    kept = host.check_output("find /var/lib/modelhost -mindepth 1 -maxdepth 1").split()
    assert sorted(kept) == [
        "/var/lib/modelhost/adopted", "/var/lib/modelhost/benchmarks", "/var/lib/modelhost/coherence", "/var/lib/modelhost/nccl_sweeps",
        "/var/lib/modelhost/weights"]
    assert host.run("pgrep -f '[v]llm_standin'").rc == 1
    assert not host.user("modelhost").exists
    # its status differs between releases where nothing matches
    assert host.run("systemctl list-unit-files 'vllm-*' --no-legend").stdout == ""
    assert "changed=0" in controller.plays("teardown").said
