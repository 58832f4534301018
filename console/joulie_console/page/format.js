// Numbers and times as text.

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const clockTime = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dayTime = new Intl.DateTimeFormat("en-GB", { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });

export const count = (value) => number.format(value);

export function watts(value) {
  if (value === null || value === undefined || value < 0) return "unknown";
  if (value >= 1e6) return `${(value / 1e6).toFixed(2)} MW`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)} kW`;
  return `${number.format(value)} W`;
}

// A node above its cap has negative headroom.
export const percent = (value) => (value === null || value === undefined ? "unknown" : `${value.toFixed(0).replace("-", "\u2212")} %`);

export const points = (value) => (value >= 0 ? `+${value.toFixed(1)}` : `\u2212${Math.abs(value).toFixed(1)}`);

export function lasting(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  return `${Math.round(ms / 3_600_000)} h`;
}

export const ago = (atMs) => (atMs ? `${lasting(Math.max(0, Date.now() - atMs))} ago` : "never");

export const clock = (atMs) => clockTime.format(atMs);

export const moment = (atMs) => (atMs ? dayTime.format(atMs) : "before the first commit");

export const CLASSES = ["unknown", "performance", "eco", "draining"];
