# A batch that failed, and its corrected file. $ID is its upload.
export WEIGHBRIDGE_ALERT_URLS=json://127.0.0.1:9000
python3 -IS -c '
import http.server
class Taken(http.server.BaseHTTPRequestHandler):
    def do_POST(self): self.send_response(200); self.end_headers()
http.server.HTTPServer(("127.0.0.1", 9000), Taken).serve_forever()' > alerts.log 2>&1 & disown
{ echo "Case Number,Plaintiff,Amount,Entry Date"; seq --format="2026-CV-%g,Acme Ltd,?,2026-01-07" 9; } > wrong.csv
sed "s/?/1250.50/" wrong.csv > fixed.csv
weighbridge load wrong.csv --pipeline judgments --batch simplicity-2026-01-07 > /dev/null || true
ID=$(weighbridge uploads list --json | json "r[0]['upload_id']")
