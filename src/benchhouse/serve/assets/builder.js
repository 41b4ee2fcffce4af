// Checks the form of a new run while one types: asks for the same page and takes its plan and its faults over.
"use strict";
const form = document.getElementById("builder");
let timer, asked = 0;
async function check() {
  const mine = ++asked;
  const address = `${form.action}?${new URLSearchParams(new FormData(form))}`;
  const answer = await fetch(address, { headers: { Accept: "text/html" } }).catch(() => null);
  if (!answer || mine !== asked) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const plan = page.getElementById("plan");
  if (!plan || mine !== asked) return;
  document.getElementById("plan").replaceWith(plan);
  for (const fault of form.querySelectorAll(".fault")) {
    const now = page.getElementById(fault.id);
    fault.textContent = now ? now.textContent : "";
    const input = document.getElementById(fault.id.replace(/-fault$/, ""));
    if (fault.textContent) input.setAttribute("aria-invalid", "true"); else input.removeAttribute("aria-invalid");
  }
  history.replaceState(null, "", address);
}
form?.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(check, 400); });
