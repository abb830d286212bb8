const uploads = document.querySelector("wb-upload"), happened = document.querySelector("#happened");

async function renew() {
  const answer = await fetch("/token", { method: "POST" });
  if (!answer.ok) return;
  const { token, expires_at } = await answer.json();
  uploads.setAttribute("expires", expires_at); // so that it asks again shortly before
  uploads.setAttribute("key", token);
}

uploads.addEventListener("wb-upload-token", renew);
for (const kind of ["sent", "done", "error"]) {
  uploads.addEventListener(`wb-upload-${kind}`, ({ detail }) => {
    const line = document.createElement("li");
    line.textContent = `${kind}: ${detail.file} (${detail.status ?? detail.code})`;
    happened.append(line);
  });
}
renew();
