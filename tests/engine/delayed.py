"""A small task whose return comes with the last step."""

import gymnasium
import numpy as np


class Delayed(gymnasium.Env):
    """The first action decides; some later steps show a cost or a gain, which counts, too. All is paid at the end."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length: int = 10, *, pays: float = 2.0, truncates: bool = False, endless: bool = False):
        self.length, self.pays, self.truncates, self.endless = length, pays, truncates, endless

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.earned, self.coin = 0, 0.0, 0.0
        return self.shown(), {}

    def step(self, action):
        if self.steps == 0:
            self.earned = self.pays * action
        else:
            self.earned += self.coin * bool(self.pays)
        self.steps += 1
        self.coin = float(self.np_random.choice((-1.0, 0.0, 1.0), p=(0.1, 0.8, 0.1)))
        is_over = self.steps >= self.length and not self.endless
        reward = self.earned if is_over else 0.0
        return self.shown(), reward, is_over and not self.truncates, is_over and self.truncates, {}

    def shown(self):
        return np.array([self.steps == 0, self.coin, 1.0], np.float32)


class DelayedPicture(Delayed):
    """The same task, in pictures: the left half is bright at first, the right one shows how many coins there were."""

    observation_space = gymnasium.spaces.Box(0, 255, (8, 8, 1), np.uint8)

    def shown(self):
        self.coins = 0.0 if self.steps == 0 else self.coins + self.coin
        picture = np.zeros((8, 8, 1), np.uint8)
        picture[:, :4], picture[:, 4:] = 200 * (self.steps == 0), np.clip(120 + 60 * self.coins, 0, 255)
        return picture
