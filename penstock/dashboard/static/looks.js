// Looks of charts: colours, and places and words of the ticks of their axes.

// Okabe and Ito's colours, distinct with any colour vision; dashes are distinct without colour.
export const COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"];
const DARK_COLORS = ["#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#0090e0", "#d55e00"];
const GREYS = ["#b9c5cf", "#d3dce3", "#9fadb9"], DARK_GREYS = ["#465665", "#33414d", "#5b6d7d"];

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export const WAIT = -1;

// Colour of a number; `count` tells parts of one number apart, such as several waits.
export function colorOf(color, count = 0) {
  if (color === WAIT) return (isDark() ? DARK_GREYS : GREYS)[count % GREYS.length];
  const colors = isDark() ? DARK_COLORS : COLORS;
  return colors[color % colors.length];
}

export function inks() {
  return isDark() ? { ink: "#c9d4de", grid: "#2b3946", paper: "#111a22" } : { ink: "#33475a", grid: "#e3eaf0", paper: "#ffffff" };
}

// Multiples of a step between two values.
export function ticks(low, high, step) {
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, n) => +((first + n) * step).toPrecision(12));
}

// Logarithms of round numbers between two logarithms, for an axis of `length` pixels.
export function logTicks(low, high, length) {
  const most = Math.max(2, length / 45), decades = high - low;
  if (decades < 1) {
    const [from, to] = [10 ** low, 10 ** high], rough = (to - from) / Math.min(5, most), power = 10 ** Math.floor(Math.log10(rough));
    return ticks(from, to, [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((step) => step >= rough)).map(Math.log10);
  }
  const factors = 3 * decades <= most ? [1, 2, 5] : 2 * decades <= most ? [1, 3] : [1], every = Math.ceil(decades / most);
  return ticks(Math.floor(low), high, every).flatMap((power) => factors.map((factor) => power + Math.log10(factor))).filter((at) => at >= low && at <= high);
}

// A number with at most `digits` digits; ticks are round numbers, and no two of them may look alike.
export function shortened(value, unit, digits = 8) {
  const size = Math.abs(value), rounded = +value.toPrecision(digits);
  if (unit === "share") return `${+(100 * value).toPrecision(digits)} %`;
  for (const [factor, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (size >= factor && size < 1e15) return `${+(value / factor).toPrecision(digits)} ${letter}`;
  return (size !== 0 && size < 1e-3) || size >= 1e15 ? rounded.toExponential() : String(rounded);
}
