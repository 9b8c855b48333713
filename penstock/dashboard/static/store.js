// Metrics of a run in columns, and values between their rows.

// Metrics of lines by name; null for lines without one.
export class Store {
  // columns: metrics by name, null for rows without one. most: largest number of names; leftOut: dropped values.
  constructor(columns, most = Infinity) {
    // Without a prototype, a metric may have any name.
    Object.assign(this, { columns: Object.assign(Object.create(null), columns), most, leftOut: 0 });
    this.count = columns.steps ? columns.steps.length : 0;
  }

  // Adds a line; returns whether it has a name that no line before it has.
  add(line) {
    let left = this.most - Object.keys(this.columns).length, isNew = false;
    for (const name of Object.keys(line)) {
      if (name in this.columns) continue;
      if (left-- > 0) {
        this.columns[name] = new Array(this.count).fill(null);
        isNew = true;
      } else this.leftOut += 1;
    }
    for (const name of Object.keys(this.columns)) this.columns[name].push(Object.hasOwn(line, name) ? line[name] ?? null : null);
    this.count += 1;
    return isNew;
  }

  // x, ascending and unique, and a column of each name; rows have a value of one of them at least.
  rows(x, names) {
    const at = this.columns[x] || [], columns = names.map((name) => this.columns[name] || []);
    const rows = [];
    for (let row = 0; row < this.count; row++) {
      if (at[row] !== null && at[row] !== undefined && columns.some((column) => column[row] !== null && column[row] !== undefined)) rows.push(row);
    }
    rows.sort((a, b) => at[a] - at[b]);
    return unique([rows.map((row) => at[row]), ...columns.map((column) => rows.map((row) => column[row] ?? null))]);
  }
}

// Rows of ascending x with one row for each x: of several values the last one, as lines of one step would be saw teeth.
function unique(data) {
  const [x, ...columns] = data, kept = [];
  const made = columns.map(() => []);
  x.forEach((at, row) => {
    if (!kept.length || at > kept[kept.length - 1]) {
      kept.push(at);
      columns.forEach((column, n) => made[n].push(column[row]));
    } else columns.forEach((column, n) => { if (column[row] !== null && column[row] !== undefined) made[n][kept.length - 1] = column[row]; });
  });
  return [kept, ...made];
}

// Value of a column at a place among the ascending places of its rows: on the line between two values, or the first or last one.
export function valueAt(places, column = [], at) {
  let below = -1;
  for (let n = 0; n < places.length; n++) {
    if (places[n] === null || column[n] === null || column[n] === undefined) continue;
    if (places[n] >= at) return below < 0 || places[n] === at ? column[n] : column[below] + ((column[n] - column[below]) * (at - places[below])) / (places[n] - places[below]);
    below = n;
  }
  return below < 0 ? null : column[below];
}
