// The board: its rows come as JSON each second, and every word of a run is set as text.
{
  const MARKS = { done: "\u2713", failed: "\u2715", refused: "\u2715", stopped: "\u25a0" }, MOST = 8, LEAST = 2;
  const find = (name) => document.querySelector(name), told = find(".told"), search = find(".search"), compare = find(".compare");
  const chosen = new Set(), lines = new Map();
  let rows = [], mark = "", unread = 0, order = ["started", -1];

  const state = (row) => row.live ? "running" : row.verdict || (row.seen ? "no end" : "empty");
  const mean = (row) => row.live ? "\u25cf" : MARKS[row.verdict] || "\u2026";
  const moment = (seconds) => (seconds ? new Date(seconds * 1000).toLocaleString() : "");
  const plain = (name, kind) => (cell, row) => { cell.className = kind; cell.textContent = row[name]; };
  const whole = (number) => (number === null ? "" : number.toLocaleString("en"));
  const spark = (values) => {
    const svg = document.createElementNS(SVG, "svg"), path = document.createElementNS(SVG, "path");
    const low = Math.min(...values), span = Math.max(...values) - low || 1;
    svg.setAttribute("viewBox", "0 0 100 20");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    if (values.length > 1) path.setAttribute("d", "M" + values.map((y, at) => `${(at * 100) / (values.length - 1)} ${20 - ((y - low) / span) * 20}`).join("L"));
    svg.append(path);
    return svg;
  };
  // By column: its head, the field by which it sorts, and what a cell has.
  const COLUMNS = [
    ["State", state, (cell, row) => {
      cell.className = `state ${row.live ? "done" : ["done", "failed", "refused", "stopped"].includes(row.verdict) ? row.verdict : "unknown"}`;
      cell.textContent = `${mean(row)} ${state(row)}`;
      cell.title = row.message || (row.ended ? "" : `last sign ${moment(row.seen)}`);
    }],
    ["Run", (row) => row.id, (cell, row) => {
      const name = made(row.command ? "span" : "a", "", row.id);
      if (!row.command) name.href = `run/${encodeURIComponent(row.id)}/`;
      cell.append(name);
    }],
    ["Step", (row) => row.step, (cell, row) => { cell.className = "number"; cell.textContent = whole(row.step) + (row.steps ? ` / ${whole(row.steps)}` : ""); }],
    ["Loss", (row) => row.loss, (cell, row) => { cell.className = "number"; cell.textContent = row.loss === null ? "" : figure(row.loss); }],
    ["", null, (cell, row) => { cell.className = "less"; cell.append(spark(row.losses)); }],
    ["Duration", (row) => row.seconds, plain("took", "number")],
    ["Script", (row) => row.script, (cell, row) => {
      plain("script", "script")(cell, row);
      if (!row.command || row.live) return;
      cell.append(made("code", "", row.command));
      addCopy(cell.firstChild);
    }],
    ["Hosts", (row) => row.hosts, plain("hosts", "less")],
    ["Who", (row) => row.who, plain("who", "less")],
    ["Started", (row) => row.started, (cell, row) => { cell.className = "less"; cell.textContent = moment(row.started); }],
    ["Commit", (row) => row.commit, (cell, row) => { cell.className = "less"; cell.append(made("code", "", row.commit)); }],
  ];

  const heads = () => {
    const head = made("tr");
    head.append(made("th"));
    COLUMNS.forEach(([title, by], place) => {
      const cell = made("th"), button = made("button", "", title);
      cell.scope = "col";
      cell.className = place === 4 || place > 6 ? "less" : "";
      button.type = "button";
      button.onclick = () => { order = [title, order[0] === title ? -order[1] : 1]; heads(); show(); };
      if (by) cell.append(button);
      if (order[0] === title) cell.setAttribute("aria-sort", order[1] > 0 ? "ascending" : "descending");
      head.append(cell);
    });
    find(".runs thead").replaceChildren(head);
  };
  const sorted = () => {
    const by = COLUMNS.find(([title]) => title === order[0])?.[1];
    if (!by) return rows;
    const rank = (value) => value === null || value === "" ? 1 : 0;
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
    line.append(first, ...COLUMNS.map(([, , fill]) => { const cell = made("td"); fill(cell, row); return cell; }));
    lines.set(row.id, { text, line });
    return line;
  };
  const show = () => {
    const word = search.value.toLowerCase(), body = find(".runs tbody"), active = document.activeElement?.closest?.("tr");
    const wanted = sorted().filter((row) => [row.id, row.script, row.hosts, row.who, row.commit, state(row)].join(" ").toLowerCase().includes(word)).map(lineOf);
    if (wanted.length !== body.children.length || wanted.some((line, at) => line !== body.children[at])) body.replaceChildren(...wanted);
    if (active && body.contains(active) && document.activeElement === document.body) active.querySelector("input").focus();
    find(".empty").hidden = rows.length > 0;
  };
  const choose = () => {
    compare.disabled = chosen.size < LEAST || chosen.size > MOST;
    find(".chosen").textContent = chosen.size ? `${chosen.size} ticked; ${LEAST} to ${MOST} can be compared` : "";
  };
  const tableOf = (title, names, all) => {
    const table = made("table"), head = made("tr");
    table.append(made("caption", "", title));
    head.append(made("th"), ...names.map((name, at) => made("th", "", `${LETTERS[at]} ${name}`)));
    table.append(head);
    for (const { name, values, ratio } of all) {
      const line = table.insertRow();
      line.append(made("th", "", name), ...values.map((value) => made("td", "", value || "\u2013")), made("td", "same", ratio));
    }
    return table;
  };
  compare.onclick = async () => {
    const names = rows.map((row) => row.id).filter((id) => chosen.has(id));
    const answer = await fetch(`compare.json?${names.map((name) => `run=${encodeURIComponent(name)}`).join("&")}`);
    if (!answer.ok) { told.textContent = "One of these runs is gone."; return; }
    const compared = await answer.json(), home = find("#comparison");
    home.hidden = false;
    find("#comparison .finding").textContent = compared.differences.length ? "" : "Nothing differs in command, code, packages and hosts, as far as they were recorded.";
    const curves = compared.curves.map(({ name, unit, axis, runs }) => chartOf(`${name} by ${axis === "step" ? "step" : "time"}`, unit, axis, runs.map((points, at) => ({ name: compared.names[at], points }))));
    find(".curves").replaceChildren(...curves);
    const internal = compared.differences.filter(([title]) => title === "Hosts").map(([title, all]) => {
      const folded = made("details");
      folded.append(made("summary", "", `${title}: what differs (${all.length})`), tableOf("", compared.names, all));
      return folded;
    });
    const differing = compared.differences.filter(([title]) => title !== "Hosts").map(([title, all]) => tableOf(`${title}: what differs`, compared.names, all));
    find(".tables").replaceChildren(tableOf("Results", compared.names, compared.numbers), ...differing, ...internal);
    enhance(home);
    home.scrollIntoView();
  };
  search.oninput = show;

  const look = async () => {
    if (!document.hidden) {
      try {
        const answer = await fetch(`runs.json?have=${mark}`);
        if (answer.status === 200) {
          const list = await answer.json();
          [mark, rows, unread] = [answer.headers.get("ETag"), list.rows, list.unread];
          find(".folder").textContent = list.folder + (unread ? `: ${unread} older runs are being read` : "");
          find(".faults").textContent = list.faults.join("\n");
          show();
        } else if (answer.status !== 204) throw new Error();
        told.textContent = "";
      } catch { told.textContent = "The board has ended: this is what it showed last."; }
    }
    setTimeout(look, unread ? 50 : 1000);
  };
  heads();
  look();
}
