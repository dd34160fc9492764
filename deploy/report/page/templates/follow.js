// Ask the board again and again for what is newer than what this page has, and say when it has ended.
function follow(address, take, pause = () => 1000) {
  const told = document.querySelector(".told");
  let mark = "";
  const look = async () => {
    if (!document.hidden && !document.querySelector(":active")) { // nothing changes under a mouse that draws
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
