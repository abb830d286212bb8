printf '{"dataset_id": "1234567890", "access_token": "EAAB"}' > meta.json
