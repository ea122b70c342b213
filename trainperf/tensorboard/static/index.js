// What TensorBoard loads: it sends the frame to our own page, which has a policy of its own.

export function render() {
  document.location.href = new URL("index.html", import.meta.url).href;
}
