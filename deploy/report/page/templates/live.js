// Keep the page of a run up to date: replace the parts that differ in the board's newer copy.
// The board escapes text in its copy, the policy lets no other script run, and DOMParser runs no scripts.
{
  const main = document.querySelector("main");
  const sources = new Map([...main.children].map((part) => [part.id, part.outerHTML]));

  // A new part keeps the reader's state in the old part: which element has the focus, and how far elements are scrolled.
  const reached = (part) => [...part.querySelectorAll("a, button, input, select, summary, [tabindex]")];
  const scrolled = (part) => [...part.querySelectorAll("pre, .values")];
  const place = ({ scrollHeight, clientHeight, scrollTop }) => (scrollHeight - clientHeight - scrollTop > 4 ? scrollTop : scrollTop ? scrollHeight : null);

  const take = (source) => {
    const other = new DOMParser().parseFromString(source, "text/html").querySelector("main");
    const parts = [...other.children], ids = new Set(parts.map((part) => part.id));
    for (const old of [...main.children]) if (!ids.has(old.id)) { sources.delete(old.id); old.remove(); }
    parts.forEach((part, index) => {
      const old = [...main.children].find((each) => each.id === part.id), text = part.outerHTML;
      if (old && sources.get(part.id) === text) return;
      sources.set(part.id, text);
      const open = new Map([...(old?.querySelectorAll("details") || [])].map((each) => [each.dataset.key, each.open]));
      for (const each of part.querySelectorAll("details")) each.open = open.get(each.dataset.key) ?? each.open;
      const focus = old ? reached(old).indexOf(document.activeElement) : -1, behind = old ? scrolled(old).map(place) : [];
      if (old) old.replaceWith(part); else main.insertBefore(part, main.children[index] || null);
      enhance(part);
      addLogs(part);
      scrolled(part).forEach((each, at) => { if (typeof behind[at] === "number") each.scrollTop = behind[at]; });
      if (focus >= 0) reached(part)[focus]?.focus({ preventScroll: true });
    });
  };
  setTimeout(() => follow(() => "?", take), 1000);

  // Show one log at a time: that of the chosen rank, only its lines with a word, scrolled to the newest while followed.
  const log = { file: "", choices: 0, text: "", word: "", follow: true };
  const showLog = () => {
    const home = document.querySelector("#logs pre"), word = log.word.toLowerCase();
    if (!home) return;
    home.hidden = !log.file;
    home.textContent = word ? log.text.split("\n").filter((line) => line.toLowerCase().includes(word)).join("\n") : log.text;
    if (log.follow) home.scrollTop = home.scrollHeight;
  };
  function addLogs(part) {
    const [choose, word, follow] = part.querySelectorAll(".choice select, .choice input");
    if (!choose) return;
    [choose.value, word.value, follow.checked] = [log.file, log.word, log.follow];
    choose.onchange = () => { Object.assign(log, { file: choose.value, choices: log.choices + 1, text: "" }); showLog(); };
    word.oninput = () => { log.word = word.value; showLog(); };
    follow.onchange = () => { log.follow = follow.checked; showLog(); };
    showLog();
  }
  addLogs(document);
  const wanted = () => (log.follow || !log.text) && log.file && `${log.file}?look=${log.choices}&`;
  follow(wanted, (text) => { log.text = text; showLog(); });
}