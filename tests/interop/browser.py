"""Headless Chromium (from Debian), which opens the pages that we write."""
import shutil

import pytest

DRIVER, BROWSER = "chromedriver", "chromium"

# Every element that itself shows text, with the contrast of its colour and what is behind it (WCAG 2.1, 1.4.3).
CONTRASTS = """
const parse = text => text.match(/[\\d.]+/g).map(Number);
const light = c => { const f = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * f(c[0]) + 0.7152 * f(c[1]) + 0.0722 * f(c[2]); };
const ground = node => { for (; node; node = node.parentElement) { const c = parse(getComputedStyle(node).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
const found = [];
for (const node of document.querySelectorAll('body *')) {
  if (![...node.childNodes].some(child => child.nodeType === 3 && child.data.trim()) || node.getClientRects().length === 0) continue;
  if (['SCRIPT', 'STYLE', 'TITLE'].includes(node.tagName.toUpperCase())) continue;
  const style = getComputedStyle(node), is_svg = node instanceof SVGElement;
  const a = light(parse(is_svg ? style.fill : style.color)), b = light(ground(is_svg ? node.ownerSVGElement.parentElement : node));
  found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.textContent.slice(0, 40)]);
}
return found;
"""


class Browser:
    """One page at a time."""

    def __init__(self):
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which(BROWSER)
        for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"):
            options.add_argument(word)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=shutil.which(DRIVER)))

    def open(self, url, width=1280, dark=False, media="screen"):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600})
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
        self.driver.get(str(url))

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def errors(self):
        """What the page has complained of since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def contrasts(self):
        return self.js(CONTRASTS)

    def screenshot(self, file):
        """Writes the whole page."""
        import base64

        picture = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "format": "png"})
        file.write_bytes(base64.b64decode(picture["data"]))

    def pdf(self):
        import base64

        return base64.b64decode(self.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})["data"])


def open_browser():
    pytest.importorskip("selenium")
    if not shutil.which(DRIVER) or not shutil.which(BROWSER):
        pytest.skip("needs Debian's packages chromium and chromium-driver, which scripts/setup --tests installs")
    return Browser()
