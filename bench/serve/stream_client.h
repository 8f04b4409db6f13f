#pragma once
// One streaming chat completion over a plain socket, with the arrival time of every token.

#include <chrono>
#include <string>
#include <vector>

namespace k3pod::bench {

struct StreamTimes {
    bool is_complete = false;     // all tokens and [DONE] came
    std::string error;            // why not
    double ttft_s = 0;            // request sent to first token
    std::vector<double> token_s;  // seconds since the request was sent, one per token
};

struct StreamRequest {
    int port = 0;
    std::string question;
    int max_tokens = 0;  // exactly as many are generated (ignore_eos)
    double timeout_s = 60;
};

// Blocks until the stream ends or is silent for timeout_s.
StreamTimes run_stream(const StreamRequest& request);

// Status code of GET /health, 0 when nobody answers.
int health_status(int port);

}  // namespace k3pod::bench
