#include "tests/contract/generation_service_contract.h"
#include "tests/support/gate.h"
#include "tests/support/scripted_engine.h"

namespace k3pod::testing {
namespace {

class EngineWorld final : public GenerationServiceWorld {
  public:
    EngineWorld() : scripted_(options()) {
        scripted_.model.set_hook([this](const ModelStep&) {
            gate_.pass();
            return Status::ok();
        });
    }
    ~EngineWorld() override { gate_.open(); }

    GenerationService& service() override { return *scripted_.engine; }
    void script(std::vector<int32_t> continuation, int32_t end_id) override {
        scripted_.model.script_any(std::move(continuation), end_id);
    }
    void hold() override { gate_.close(); }
    void release() override { gate_.open(); }
    void close(const std::string& reason) override {
        scripted_.engine->set_accepting(false, reason);
    }

  private:
    static ScriptedEngineOptions options() {
        ScriptedEngineOptions options;
        options.limits.max_num_seqs = 1;
        options.limits.queue_limit = 1;
        options.limits.max_model_len = 1000;
        return options;
    }

    Gate gate_;
    ScriptedEngine scripted_;
};

INSTANTIATE_TEST_SUITE_P(Engine, GenerationServiceContract,
                         ::testing::Values(GenerationServiceCase{
                             "Scripted", [] { return std::make_unique<EngineWorld>(); }}),
                         case_name);

}  // namespace
}  // namespace k3pod::testing
