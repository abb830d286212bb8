USER_ID=0b5d3a0e-8a51-4a4e-9d0a-6f0f5e3c2d1b
make_samples
weighbridge load samples/court-judgments.csv --pipeline judgments
