"""Names of the built-in algorithms and the places of their classes, which are imported on demand."""

from __future__ import annotations

from penstock.config import find_object

ALGORITHMS = {
    "appo": "penstock.algorithms.appo:APPO",
    "ppo": "penstock.algorithms.ppo:PPO",
    "a2c": "penstock.algorithms.a2c:A2C",
    "a3c": "penstock.algorithms.a3c:A3C",
    "impala": "penstock.algorithms.impala:IMPALA",
    "impact": "penstock.algorithms.impact:IMPACT",
    "clear": "penstock.algorithms.clear:CLEAR",
    "laser": "penstock.algorithms.laser:LASER",
    "pqn": "penstock.algorithms.pqn:PQN",
    "dqn": "penstock.algorithms.dqn:DQN",
    "rainbow": "penstock.algorithms.rainbow:Rainbow",
    "btr": "penstock.algorithms.btr:BTR",
    "apex": "penstock.algorithms.apex:ApeX",
    "r2d2": "penstock.algorithms.r2d2:R2D2",
    "ddpg": "penstock.algorithms.ddpg:DDPG",
    "td3": "penstock.algorithms.td3:TD3",
    "sac": "penstock.algorithms.sac:SAC",
    "tqc": "penstock.algorithms.tqc:TQC",
    "crossq": "penstock.algorithms.crossq:CrossQ",
    "flashsac": "penstock.algorithms.flashsac:FlashSAC",
    "fasttd3": "penstock.algorithms.fasttd3:FastTD3",
    "xqc": "penstock.algorithms.xqc:XQC",
    "apexdpg": "penstock.algorithms.apex_dpg:ApeXDPG",
}


def names_for(action_kind: str) -> list[str]:
    """Return the names of the algorithms that choose actions of a kind."""
    return [name for name, place in ALGORITHMS.items() if action_kind in find_object(place, "algorithm").actions]
