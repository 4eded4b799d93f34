// Figures as the page writes them.

export const number = (x, digits = 1) => x.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
export const percent = (x) => `${Math.round(100 * x)} %`;
export const plural = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
export const mebibytes = (n) => `${(n / 2 ** 20).toLocaleString("en", { maximumFractionDigits: 3 })} MiB`;
