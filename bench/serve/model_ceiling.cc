#include "model_ceiling.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tests/support/tiny_model.h"

namespace k3pod::bench {

double model_tokens_per_s(int batch, int steps) {
    testing::TinyModelOptions options;
    options.dir = K3POD_SOURCE_DIR "/models/k3-tiny";
    options.num_slots = batch;
    options.num_pages = batch * 8;
    auto tiny = testing::TinyModel::load(options);
    if (!tiny) {
        std::fprintf(stderr, "%s\n", tiny.status().message().c_str());
        std::exit(1);
    }
    const std::vector<int32_t> prompt(80, 70);
    const int32_t id = 70;
    std::vector<std::unique_ptr<testing::SequenceRun>> runs;
    for (int i = 0; i < batch; ++i) {
        runs.push_back(std::make_unique<testing::SequenceRun>(**tiny, 80 + steps));
        runs.back()->feed(prompt, SequenceChunk::Logits::kNone);
    }
    const auto start = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) {
        std::vector<SequenceChunk> chunks;
        for (auto& run : runs) chunks.push_back(run->next({&id, 1}, SequenceChunk::Logits::kLast));
        (*tiny)->step(chunks);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    return batch * steps / took.count();
}

}  // namespace k3pod::bench
