// Follows the server's events: a part is replaced when its mark has changed, unless somebody is using it.
const status = document.getElementById("status");
const source = new EventSource("events");

source.onopen = () => { status.textContent = "Live: this page follows by itself."; };
source.onerror = () => { status.textContent = "Not connected any more: start the command again, or reload."; };
source.onmessage = (event) => {
  for (const [name, [mark, html]] of Object.entries(JSON.parse(event.data))) replace(name, mark, html);
};

function replace(name, mark, html) {
  const part = document.getElementById("part-" + name);
  if (!part || part.dataset.mark === mark) return;
  if (part.contains(document.activeElement)) {
    part.addEventListener("focusout", () => setTimeout(() => replace(name, mark, html)), {once: true});
    return;
  }
  const open = [...part.querySelectorAll("details[open] > summary")].map((s) => s.textContent);
  part.dataset.mark = mark;
  part.innerHTML = html;
  for (const s of part.querySelectorAll("details > summary")) s.parentElement.open = open.includes(s.textContent);
}

// A study file that the owner was sent: handed to the node, which checks it.
const file = document.getElementById("file");
if (file) file.onchange = async () => {
  const told = document.getElementById("submitted");
  try {
    const body = await file.files[0].text();
    const answer = await fetch("submit", {method: "POST", body, headers: {"x-form-token": file.dataset.token}});
    told.textContent = await answer.text();
  } catch (error) {
    told.textContent = "The file could not be handed over: " + error.message;
  }
  file.value = "";
};
