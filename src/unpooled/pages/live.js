const status = document.getElementById("status");
const source = new EventSource("events");
source.onopen = () => { status.textContent = "Live: this page follows by itself."; };
source.onerror = () => { status.textContent = "Not connected any more: start the command again, or reload."; };
source.onmessage = (event) => {
  for (const [name, html] of Object.entries(JSON.parse(event.data))) {
    const part = document.getElementById("part-" + name);
    if (!part || part.contains(document.activeElement)) continue;
    const open = [...part.querySelectorAll("details[open] > summary")].map((s) => s.textContent);
    part.innerHTML = html;
    for (const s of part.querySelectorAll("details > summary")) if (open.includes(s.textContent)) s.parentElement.open = true;
  }
};
const file = document.getElementById("file");
if (file) file.onchange = async () => {
  const body = await file.files[0].text();
  const answer = await fetch("submit", {method: "POST", body, headers: {"x-form-token": file.dataset.token}});
  document.getElementById("submitted").textContent = await answer.text();
  file.value = "";
};
