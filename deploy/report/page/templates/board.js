// The board: fetch its rows as JSON every second. Every word from a run is set as text, never as markup.
{
  const MOST = 8, LEAST = 2;
  const find = (name) => document.querySelector(name), search = find(".search"), compare = find(".compare");
  const chosen = new Set(), lines = new Map();
  let rows = [], unread = 0, order = ["started", -1];

  const WHEN = { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" };
  const moment = (seconds) => (seconds ? new Date(seconds * 1000).toLocaleString([], WHEN) : "");
  const whole = (number) => number?.toLocaleString("en") ?? "";
  const verdict = (row) => {
    const cell = made("b", row.badge, `${row.mark} ${row.state}`);
    cell.title = row.message || (row.ended ? "" : row.ask || `last sign ${moment(row.seen)}`);
    return cell;
  };
  const link = (row) => {
    if (row.command) return row.id;
    const name = made("a", "", row.id);
    name.href = `run/${encodeURIComponent(row.id)}/`;
    return name;
  };
  const spark = (row) => {
    const values = row.losses || [], low = Math.min(...values), span = Math.max(...values) - low || 1;
    const places = values.map((y, at) => `${(at * 100) / (values.length - 1)} ${20 - ((y - low) / span) * 20}`);
    return picture("0 0 100 20", values.length > 1 ? [shape("path", { d: `M${places.join("L")}` })] : []);
  };
  const script = (row) => {
    if (!row.command || row.live) return row.script;
    const home = made("span");
    home.append(made("code", "", row.command));
    addCopy(home.firstChild);
    return home;
  };
  // For each column: its head, the value that it sorts by, its class, and a cell's content if it is not that value.
  const COLUMNS = [
    ["State", (row) => row.state, "", verdict],
    ["Run", (row) => row.id, "", link],
    ["Step", (row) => row.step, "number", (row) => whole(row.step) + (row.steps ? ` / ${whole(row.steps)}` : "")],
    ["Loss", (row) => row.loss, "number", (row) => row.loss_words],
    ["", null, "less", spark],
    ["Duration", (row) => row.seconds, "number", (row) => row.took],
    ["Script", (row) => row.script, "words", script],
    ["Hosts", (row) => row.hosts, "words less"],
    ["Who", (row) => row.who, "less"],
    ["Started", (row) => row.started, "less", (row) => moment(row.started)],
    ["Commit", (row) => row.commit, "less", (row) => made("code", "", row.commit)],
  ];

  const heads = () => {
    const head = made("tr");
    head.append(made("th"), ...COLUMNS.map(([title, by, className]) => {
      const cell = made("th", className), button = made("button", "", title);
      cell.scope = "col";
      button.onclick = () => { order = [title, order[0] === title ? -order[1] : 1]; heads(); show(); };
      if (by) cell.append(button);
      if (order[0] === title) cell.setAttribute("aria-sort", order[1] > 0 ? "ascending" : "descending");
      return cell;
    }));
    find(".runs thead").replaceChildren(head);
  };
  const sorted = () => {
    const by = COLUMNS.find(([title]) => title === order[0])?.[1];
    if (!by) return rows;
    const rank = (value) => (value ?? "") === "" ? 1 : 0;
    return [...rows].sort((one, other) => {
      const [a, b] = [by(one), by(other)];
      return rank(a) - rank(b) || order[1] * (typeof a === "string" ? a.localeCompare(b) : a - b);
    });
  };
  const lineOf = (row) => {
    const text = JSON.stringify(row), known = lines.get(row.id);
    if (known?.text === text) return known.line;
    const line = made("tr"), tick = made("input"), first = made("td");
    Object.assign(tick, { type: "checkbox", checked: chosen.has(row.id), disabled: Boolean(row.command) });
    tick.setAttribute("aria-label", `compare ${row.id}`);
    tick.onchange = () => { chosen[tick.checked ? "add" : "delete"](row.id); choose(); };
    first.append(tick);
    line.append(first, ...COLUMNS.map(([, by, className, content = by]) => {
      const cell = made("td", className);
      cell.append(content(row) ?? "");
      if (className.startsWith("words")) cell.title = by(row) ?? "";
      return cell;
    }));
    lines.set(row.id, { text, line });
    return line;
  };
  const show = () => {
    const word = search.value.toLowerCase(), body = find(".runs tbody"), active = document.activeElement?.closest?.("tr");
    const wanted = sorted().filter((row) => [row.id, row.script, row.hosts, row.who, row.commit, row.state].join(" ").toLowerCase().includes(word)).map(lineOf);
    if (wanted.length !== body.children.length || wanted.some((line, at) => line !== body.children[at])) body.replaceChildren(...wanted);
    if (active && body.contains(active) && document.activeElement === document.body) active.querySelector("input").focus();
    find(".empty").hidden = rows.length > 0;
    choose();
  };
  const ticked = () => rows.filter((row) => chosen.has(row.id));
  const choose = () => {
    const { length } = ticked();
    compare.disabled = length < LEAST || length > MOST;
    find(".chosen").textContent = length ? `${length} selected; ${LEAST} to ${MOST} can be compared` : "";
  };
  compare.onclick = () => { location.href = `compare/?${new URLSearchParams(ticked().map((row) => ["run", row.id]))}`; };
  search.oninput = show;

  heads();
  follow(() => "runs.json?", (text) => {
    const list = JSON.parse(text);
    [rows, unread] = [list.rows, list.unread];
    find(".folder").textContent = list.folder + (unread ? `: ${unread} older runs are still being read` : "");
    find(".faults").textContent = list.faults.join("\n");
    show();
  }, () => (unread ? 50 : 1000));
}
