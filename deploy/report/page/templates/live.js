// The page of a run, kept up to date: of the board's newer copy, what has changed takes the place of what is here.
// Its text is escaped where it is made, the policy lets no other script run, and this parser runs none.
{
  const main = document.querySelector("main"), told = document.querySelector(".told");
  const sources = new Map([...main.children].map((part) => [part.id, part.outerHTML]));
  let mark = main.dataset.mark;

  const take = (source) => {
    const other = new DOMParser().parseFromString(source, "text/html").querySelector("main");
    const parts = [...other.children], ids = new Set(parts.map((part) => part.id));
    mark = other.dataset.mark;
    for (const old of [...main.children]) if (!ids.has(old.id)) { sources.delete(old.id); old.remove(); }
    parts.forEach((part, place) => {
      const old = [...main.children].find((each) => each.id === part.id), text = part.outerHTML;
      if (old && sources.get(part.id) === text) return;
      sources.set(part.id, text);
      const open = new Set([...(old?.querySelectorAll("details[open] > summary") || [])].map((each) => each.textContent));
      for (const each of part.querySelectorAll("details > summary")) if (open.has(each.textContent)) each.parentNode.open = true;
      const focus = old && [...old.querySelectorAll(".plot")].indexOf(document.activeElement);
      const behind = [...(old?.querySelectorAll("pre") || [])].map((each) => each.scrollHeight - each.clientHeight - each.scrollTop > 4 ? each.scrollTop : null);
      if (old) old.replaceWith(part); else main.insertBefore(part, main.children[place] || null);
      enhance(part);
      part.querySelectorAll("pre").forEach((each, at) => { if (typeof behind[at] === "number") each.scrollTop = behind[at]; });
      if (focus >= 0) part.querySelectorAll(".plot")[focus]?.focus();
    });
  };
  const look = async () => {
    if (!document.hidden) {
      try {
        const answer = await fetch(`?have=${mark}`);
        if (answer.status === 200) take(await answer.text());
        else if (answer.status !== 204) throw new Error();
        told.textContent = "";
      } catch { told.textContent = "The board has ended: this is what it showed last."; }
    }
    setTimeout(look, 1000);
  };
  setTimeout(look, 1000);
}
