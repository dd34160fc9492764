// Ask the board again and again for anything newer than this page has, and tell the reader if the board has ended.
// `address`: what to ask for now, up to `have=`; empty if there is nothing to ask for.
function follow(address, take, pause = () => 1000) {
  const told = document.querySelector(".told");
  let mark = "", before = "";
  const look = async () => {
    const asked = address();
    if (asked && !document.hidden && !document.querySelector(":active")) { // nothing changes while a mouse button is pressed
      try {
        const answer = await fetch(`${asked}have=${asked === before ? mark : ""}`), text = await answer.text();
        if (answer.status === 403) throw new Error();
        if (answer.status === 200 && asked === address()) { take(text); [before, mark] = [asked, answer.headers.get("ETag")]; }
        told.textContent = "";
      } catch { told.textContent = "The board has ended: this page shows its last state."; }
    }
    setTimeout(look, pause());
  };
  look();
}
