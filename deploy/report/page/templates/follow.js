// Ask the board again and again for anything newer than this page has, and tell the reader if the board has ended.
function follow(address, take, pause = () => 1000) {
  const told = document.querySelector(".told");
  let mark = "";
  const look = async () => {
    if (!document.hidden && !document.querySelector(":active")) { // nothing changes while a mouse button is pressed
      try {
        const answer = await fetch(`${address}?have=${mark}`);
        if (answer.status === 200) { await take(answer); mark = answer.headers.get("ETag"); }
        else if (answer.status !== 204) throw new Error();
        told.textContent = "";
      } catch { told.textContent = "The board has ended: this page shows its last state."; }
    }
    setTimeout(look, pause());
  };
  look();
}
