"""Costs of a run on nodes, and the run, in round numbers."""

from penstock.bench.scaling import Constants, Setting

US = 1e-6
CONSTANTS = Constants(
    lane=8 * US, call=160 * US, learn=4 * US, send_block=64 * US, send_byte=1e-9, receive_block=128 * US,
    receive_byte=2e-9, tell=100 * US, tell_byte=1e-9, hear=50 * US, hear_byte=0.5e-9, host=0.01, supervisor=0.02,
    supervise=0.004, trip=1e-3, reduce_byte=1e-9,
)  # fmt: skip
SETTING = Setting(
    nodes=1, workers=2, lanes=16, slots=2, segment=32, step_nbytes=50.0, weights_nbytes=100_000,
    steps_per_version=1_000.0,
)  # fmt: skip
