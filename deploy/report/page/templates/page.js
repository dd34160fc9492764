// Under the pointer: the step and each series' value there. The page is complete without it.
for (const plot of document.querySelectorAll(".plot")) {
  const [low, high] = plot.dataset.x.split(",").map(Number);
  const series = JSON.parse(plot.dataset.series);
  const unit = plot.dataset.unit ? " " + plot.dataset.unit : "";
  const output = plot.parentNode.querySelector("output");
  const cursor = document.createElement("span");
  cursor.className = "cursor";
  cursor.hidden = true;
  plot.append(cursor);
  const nearest = (points, x) => {
    let from = 0, to = points.length - 1;
    while (to - from > 1) {
      const middle = (from + to) >> 1;
      if (points[middle][0] < x) from = middle; else to = middle;
    }
    return x - points[from][0] < points[to][0] - x ? points[from] : points[to];
  };
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const x = low + ((event.clientX - box.left) / box.width) * (high - low);
    const finest = series.reduce((one, other) => other.points.length > one.points.length ? other : one);
    const main = nearest(finest.points, x);
    const near = series.map((one) => [one.name, nearest(one.points, main[0])])
      .filter(([, point]) => Math.abs(point[0] - main[0]) <= (high - low) / 100);
    cursor.style.left = ((main[0] - low) / (high - low)) * 100 + "%";
    cursor.hidden = false;
    output.textContent = plot.dataset.axis + " " + main[0].toLocaleString("en") + "  " +
      near.map(([name, [, value]]) => (near.length > 1 ? name + " " : "") + value.toLocaleString("en", { maximumSignificantDigits: 4 }))
        .join(", ") + unit;
  });
  plot.addEventListener("pointerleave", () => {
    cursor.hidden = true;
    output.textContent = "";
  });
}
