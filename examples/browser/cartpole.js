// CartPole in the browser. policy.onnx, a file of `penstock export`, chooses the actions in onnxruntime-web.

import * as ort from "./node_modules/onnxruntime-web/dist/ort.wasm.bundle.min.mjs";

const [GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS] = [9.8, 1.0, 0.1, 0.5, 10.0, 0.02];
const LONGEST_FRAME = 30; // ms
const [RAIL, TILT, MOST_STEPS] = [2.4, (12 * 2 * Math.PI) / 360, 500];

/** Return a state at the start of an episode: position, velocity, angle, angular velocity. */
export function reset() {
  return Array.from({ length: 4 }, () => 0.1 * Math.random() - 0.05);
}

/** Return the state after one step of Gymnasium's CartPole-v1 (Euler); action 0 pushes left, 1 right. */
export function step([x, velocity, angle, spin], action) {
  const force = action === 1 ? FORCE : -FORCE;
  const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
  const total = CART + POLE;
  const pushed = (force + POLE * HALF_LENGTH * spin ** 2 * sin) / total;
  const turned = (GRAVITY * sin - cos * pushed) / (HALF_LENGTH * (4 / 3 - (POLE * cos ** 2) / total));
  const gained = pushed - (POLE * HALF_LENGTH * turned * cos) / total;
  return [x + SECONDS * velocity, velocity + SECONDS * gained, angle + SECONDS * spin, spin + SECONDS * turned];
}

/** Return whether the pole has fallen or the cart has left the rail. */
export function isOver([x, , angle]) {
  return Math.abs(x) > RAIL || Math.abs(angle) > TILT;
}

/** Return a function from a state to an action, by the ONNX file at an address. */
export async function load(address) {
  ort.env.wasm.numThreads = 1;
  const policy = await ort.InferenceSession.create(address);
  return async (state) => {
    const obs = new ort.Tensor("float32", Float32Array.from(state), [1, 4]);
    const { action } = await policy.run({ obs });
    return Number(action.data[0]);
  };
}

const element = (id) => document.getElementById(id);

function draw(state) {
  const canvas = element("scene");
  const style = getComputedStyle(document.documentElement);
  canvas.width = canvas.clientWidth * devicePixelRatio;
  canvas.height = canvas.clientHeight * devicePixelRatio;
  const context = canvas.getContext("2d");
  const unit = canvas.width / (2 * RAIL + 0.8);
  context.translate(canvas.width / 2, canvas.height * 0.78);
  context.scale(unit, -unit);
  const [x, , angle] = state;
  const color = (name) => resolved(style.getPropertyValue(name));
  context.fillStyle = color("--line");
  context.fillRect(-RAIL, -0.01, 2 * RAIL, 0.02);
  context.translate(x, 0);
  context.fillStyle = color("--cart");
  context.fillRect(-0.25, -0.12, 0.5, 0.24);
  context.rotate(-angle);
  context.fillStyle = color("--pole");
  context.fillRect(-0.04, 0, 0.08, 2 * HALF_LENGTH);
}

/** Return a colour as the page shows it in the light or the dark scheme. */
function resolved(color) {
  const probe = element("scene");
  probe.style.color = color;
  return getComputedStyle(probe).color;
}

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];

async function main() {
  const act = await load("policy.onnx");
  element("status").textContent = "The policy chooses 50 actions for each second of the simulation.";
  const counts = { step: 0, balanced: 0, fallen: 0 };
  let [state, times] = [reset(), []];
  element("left").onclick = () => (state[1] -= 1);
  element("right").onclick = () => (state[1] += 1);
  for (let [due, drawn] = [performance.now(), 0]; ; ) {
    const began = performance.now();
    state = step(state, await act(state));
    times = [...times.slice(-199), performance.now() - began];
    counts.step += 1;
    const [fallen, balanced] = [isOver(state), counts.step === MOST_STEPS];
    if (fallen || balanced) {
      counts[fallen ? "fallen" : "balanced"] += 1;
      [state, counts.step] = [reset(), 0];
    }
    due += (1000 * SECONDS) / Number(element("speed").value);
    const now = performance.now();
    if (due > now || now - drawn > LONGEST_FRAME) {
      draw(state);
      for (const [id, count] of Object.entries(counts)) element(id).textContent = count;
      element("time").textContent = `${median(times).toFixed(2)} ms`;
      await new Promise((resolve) => setTimeout(resolve, due - now));
      due = Math.max(due, now - LONGEST_FRAME);
      drawn = performance.now();
    }
  }
}

main().catch((error) => {
  element("status").textContent = `policy.onnx cannot be run: ${error.message}`;
  throw error;
});
