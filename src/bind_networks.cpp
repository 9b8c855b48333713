// Python face of parts of networks, and of computations with their outputs, in one call each. Addresses are not
// checked: penstock takes them from tensors.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <vector>

#include "adam.h"
#include "adding_cells.h"
#include "array_view.h"
#include "bindings.h"
#include "chain.h"
#include "choices.h"
#include "layers.h"
#include "plan.h"
#include "redistribution.h"
#include "squashed_normal.h"

namespace penstock {
namespace {

template <class Pointer>
Pointer at(uintptr_t address) {
  return reinterpret_cast<Pointer>(address);
}

template <class Float = const float>
std::vector<Float*> floats_at(const std::vector<uintptr_t>& addresses) {
  std::vector<Float*> found;
  for (const uintptr_t address : addresses) found.push_back(at<Float*>(address));
  return found;
}

float* floats(const ArrayView& array) { return reinterpret_cast<float*>(array.bytes()); }

}  // namespace

void bind_networks(nb::module_& module) {
  module.def(
      "use_products",
      [](uintptr_t sgemm, uintptr_t bf16_gemm, uintptr_t run_by_threads) {
        blas = {at<Blas::Sgemm>(sgemm), at<Blas::Bf16Gemm>(bf16_gemm)};
        run_by_all = at<RunByAll>(run_by_threads);
      },
      nb::arg("sgemm"), nb::arg("bf16_gemm"), nb::arg("run_by_threads"),
      "Tell where products of matrices are computed, and what has threads do something.");
  nb::class_<Layers>(module, "Layers", "Fully connected layers of several networks side by side.")
      .def(nb::init<int, std::vector<int>, int, bool, bool>(), nb::arg("networks"), nb::arg("sizes"),
           nb::arg("outputs"), nb::arg("is_turned"), nb::arg("is_tangent"))
      .def("kept_nbytes", &Layers::kept_nbytes, nb::arg("n"), nb::arg("count"), nb::arg("in_bf16"))
      .def(
          "forward",
          [](const Layers& layers, uintptr_t x, int n, int count, const std::vector<uintptr_t>& parameters,
             uintptr_t kept, uintptr_t out, bool in_bf16, int threads) {
            const auto found = floats_at(parameters);
            const nb::gil_scoped_release released;
            layers.forward(at<const float*>(x), n, count, found, at<std::byte*>(kept), at<float*>(out), in_bf16,
                           threads);
          },
          nb::arg("x"), nb::arg("n"), nb::arg("count"), nb::arg("parameters"), nb::arg("kept"), nb::arg("out"),
          nb::arg("in_bf16"), nb::arg("threads"))
      .def(
          "backward",
          [](const Layers& layers, uintptr_t x, int n, int count, const std::vector<uintptr_t>& parameters,
             uintptr_t kept, uintptr_t out, uintptr_t gradient, uintptr_t d_x, const std::vector<uintptr_t>& d_parameters,
             bool in_bf16, int threads) {
            const auto found = floats_at(parameters);
            const auto gradients = floats_at<float>(d_parameters);
            const nb::gil_scoped_release released;
            layers.backward(at<const float*>(x), n, count, found, at<const std::byte*>(kept), at<const float*>(out),
                            at<const float*>(gradient), at<float*>(d_x), gradients, in_bf16, threads);
          },
          nb::arg("x"), nb::arg("n"), nb::arg("count"), nb::arg("parameters"), nb::arg("kept"), nb::arg("out"),
          nb::arg("gradient"), nb::arg("d_x"), nb::arg("d_parameters"), nb::arg("in_bf16"), nb::arg("threads"));
  nb::class_<Chain>(module, "Chain", "Network from observations to the outputs of a head, without gradient.")
      .def(nb::init<std::vector<int>, int, bool, bool, int, int>(), nb::arg("sizes"), nb::arg("outputs"),
           nb::arg("is_tangent"), nb::arg("is_normalized"), nb::arg("gates"), nb::arg("memory_size"))
      .def(
          "run",
          [](const Chain& chain, uintptr_t x, int n, const std::vector<uintptr_t>& parameters, uintptr_t first,
             uintptr_t state, uintptr_t out, uintptr_t after, bool in_bf16, int threads) {
            const auto found = floats_at(parameters);
            const nb::gil_scoped_release released;
            chain.run(at<const float*>(x), n, found, at<const uint8_t*>(first), at<const float*>(state),
                      at<float*>(out), at<float*>(after), in_bf16, threads);
          },
          nb::arg("x"), nb::arg("n"), nb::arg("parameters"), nb::arg("first"), nb::arg("state"), nb::arg("out"),
          nb::arg("after"), nb::arg("in_bf16"), nb::arg("threads"))
      .def(
          "run_arrays",
          [](const Chain& chain, nb::handle x, const std::vector<uintptr_t>& parameters, nb::handle first,
             nb::handle state, nb::handle out, nb::handle after, int threads) {
            const ArrayView from(x, "x"), begins(first, "first"), before(state, "state");
            const ArrayView to(out, "out", Access::kWrite), kept(after, "after", Access::kWrite);
            const size_t n = begins.nbytes();
            chain.require(n, from.nbytes(), before.nbytes(), to.nbytes(), kept.nbytes());
            const auto found = floats_at(parameters);
            const nb::gil_scoped_release released;
            chain.run(floats(from), static_cast<int>(n), found, reinterpret_cast<const uint8_t*>(begins.bytes()),
                      floats(before), floats(to), floats(kept), false, threads);
          },
          nb::arg("x"), nb::arg("parameters"), nb::arg("first"), nb::arg("state"), nb::arg("out"), nb::arg("after"),
          nb::arg("threads"), "The same with NumPy arrays instead of addresses, but for the parameters.");
  using StepNumbers = std::tuple<int, int, int, int, int, float, float>;
  using LayersCall = std::tuple<int, int, bool>;             // number among the layers, networks, in bfloat16
  using SampleCall = std::tuple<size_t, float, float>;       // d, centre, reach
  using CallNumbers = std::tuple<int, std::vector<int>, std::vector<int>, int, LayersCall, SampleCall>;
  nb::class_<Plan>(module, "Plan", "Recorded computation over small tensors.")
      .def(
          "__init__",
          [](Plan* plan, const std::vector<std::vector<size_t>>& shapes, const std::vector<int>& inputs,
             const std::vector<StepNumbers>& steps, const std::vector<int>& outputs, const std::vector<CallNumbers>& calls,
             const nb::list& layers, const std::vector<size_t>& ends) {
            std::vector<Shape> found;
            for (const auto& shape : shapes) {
              if (shape.size() != kDims) throw std::invalid_argument("a shape must have three sizes");
              found.push_back({shape[0], shape[1], shape[2]});
            }
            std::vector<Kind> kinds;
            for (const int kind : inputs) kinds.push_back(static_cast<Kind>(kind));
            std::vector<Step> taken;
            for (const auto& [operation, out, a, b, c, x, y] : steps)
              taken.push_back({static_cast<Operation>(operation), out, a, b, c, x, y});
            std::vector<Call> called;
            for (const auto& [kind, reads, writes, rows, of_layers, of_sample] : calls) {
              const auto [number, networks, in_bf16] = of_layers;
              const auto [d, centre, reach] = of_sample;
              std::optional<Layers> one;
              if (number >= 0) one = nb::cast<const Layers&>(layers[static_cast<size_t>(number)]);
              called.push_back({static_cast<Call::Kind>(kind), reads, writes, std::move(one), rows, networks,
                                in_bf16, SquashedNormal{d, centre, reach}});
            }
            new (plan) Plan(Record{std::move(found), std::move(kinds), std::move(taken), std::move(called), outputs, ends});
          },
          nb::arg("shapes"), nb::arg("inputs"), nb::arg("steps"), nb::arg("outputs"),
          nb::arg("calls") = std::vector<CallNumbers>(), nb::arg("layers") = nb::list(),
          nb::arg("ends") = std::vector<size_t>())
      .def(
          "begin",
          [](Plan& plan, const std::vector<uintptr_t>& inputs, const std::vector<uintptr_t>& outputs, int threads) {
            std::vector<const void*> from;
            for (const uintptr_t address : inputs) from.push_back(at<const void*>(address));
            plan.begin(from, floats_at<float>(outputs), threads);
          },
          nb::arg("inputs"), nb::arg("outputs"), nb::arg("threads"),
          "Take the addresses of inputs and outputs, for all parts.")
      .def("run", &Plan::run, nb::arg("part"), nb::call_guard<nb::gil_scoped_release>(), "Run one part.");
  module.def(
      "adam_step",
      [](const std::vector<uintptr_t>& places, const std::vector<size_t>& sizes, double beta1, double beta2,
         double learning_rate, float eps, int threads) {
        const nb::gil_scoped_release released;
        const std::vector<float*> of = floats_at<float>(places);
        const Adam adam{beta1, beta2, learning_rate, eps};
        for (size_t i = 0; i < sizes.size(); ++i) {
          float* const* at = &of[5 * i];
          adam.step(at[0], at[1], at[2], at[3], at[4], sizes[i], threads);
        }
      },
      nb::arg("places"), nb::arg("sizes"), nb::arg("beta1"), nb::arg("beta2"), nb::arg("learning_rate"), nb::arg("eps"),
      nb::arg("threads"),
      "Take a step of Adam: of each parameter, its numbers, gradient, moments and count of steps lie at five places.");
  module.def(
      "sample_choices",
      [](uintptr_t logits, size_t n, size_t a, uintptr_t noise, uintptr_t action, uintptr_t log_prob) {
        Choices{n, a}.sample(at<const float*>(logits), at<const float*>(noise), at<int64_t*>(action),
                             at<float*>(log_prob));
      },
      nb::arg("logits"), nb::arg("n"), nb::arg("a"), nb::arg("noise"), nb::arg("action"), nb::arg("log_prob"),
      "Draw one of a actions in n rows, with their log-probabilities.");
  module.def(
      "choose_greedily",
      [](uintptr_t q, size_t n, size_t a, float epsilon, uintptr_t epsilons, uintptr_t noise, uintptr_t action) {
        Choices{n, a}.choose(at<const float*>(q), epsilon, at<const float*>(epsilons), at<const float*>(noise),
                             at<int64_t*>(action));
      },
      nb::arg("q"), nb::arg("n"), nb::arg("a"), nb::arg("epsilon"), nb::arg("epsilons"), nb::arg("noise"),
      nb::arg("action"), "Choose the action of the largest value, or with probability epsilon any, in n rows.");
  module.def(
      "sample_squashed",
      [](uintptr_t outputs, size_t n, size_t d, float centre, float reach, uintptr_t noise, uintptr_t action,
         uintptr_t log_prob) {
        SquashedNormal{d, centre, reach}.sample(at<const float*>(outputs), n, at<const float*>(noise),
                                                at<float*>(action), at<float*>(log_prob));
      },
      nb::arg("outputs"), nb::arg("n"), nb::arg("d"), nb::arg("centre"), nb::arg("reach"), nb::arg("noise"),
      nb::arg("action"), nb::arg("log_prob"), "Draw actions of n rows, with their log-densities.");
  module.def(
      "squashed_gradient",
      [](uintptr_t outputs, size_t n, size_t d, float centre, float reach, uintptr_t noise, uintptr_t action,
         uintptr_t d_action, uintptr_t d_log_prob, uintptr_t d_outputs) {
        SquashedNormal{d, centre, reach}.gradient(at<const float*>(outputs), n, at<const float*>(noise),
                                                  at<const float*>(action), at<const float*>(d_action),
                                                  at<const float*>(d_log_prob), at<float*>(d_outputs));
      },
      nb::arg("outputs"), nb::arg("n"), nb::arg("d"), nb::arg("centre"), nb::arg("reach"), nb::arg("noise"),
      nb::arg("action"), nb::arg("d_action"), nb::arg("d_log_prob"), nb::arg("d_outputs"),
      "The gradient of the outputs that actions and log-densities were drawn from.");
  module.def(
      "quantile_huber",
      [](uintptr_t theta, uintptr_t tau, bool has_tau_by_row, uintptr_t y, size_t rows, size_t quantiles, size_t samples,
         uintptr_t loss, uintptr_t slope, int threads) {
        const nb::gil_scoped_release released;
        QuantileHuber{rows, quantiles, samples}.compute(at<const float*>(theta), at<const float*>(tau), has_tau_by_row,
                                                        at<const float*>(y), at<float*>(loss), at<float*>(slope), threads);
      },
      nb::arg("theta"), nb::arg("tau"), nb::arg("has_tau_by_row"), nb::arg("y"), nb::arg("rows"), nb::arg("quantiles"),
      nb::arg("samples"), nb::arg("loss"), nb::arg("slope"), nb::arg("threads"),
      "Losses of quantiles for samples of the target, and their derivatives.");
  module.def(
      "adding_cells",
      [](uintptr_t z, uintptr_t kept, uintptr_t memory, uintptr_t weight, uintptr_t bias, size_t steps, size_t lanes,
         size_t size, uintptr_t gates, uintptr_t carried, uintptr_t cells) {
        const nb::gil_scoped_release released;
        AddingCells{steps, lanes, size}.forward(at<const float*>(z), at<const float*>(kept), at<const float*>(memory),
                                                at<const float*>(weight), at<const float*>(bias), at<float*>(gates),
                                                at<float*>(carried), at<float*>(cells));
      },
      nb::arg("z"), nb::arg("kept"), nb::arg("memory"), nb::arg("weight"), nb::arg("bias"), nb::arg("steps"),
      nb::arg("lanes"), nb::arg("size"), nb::arg("gates"), nb::arg("carried"), nb::arg("cells"),
      "Cells that only add, over time.");
  module.def(
      "adding_cells_gradient",
      [](uintptr_t d_cells, uintptr_t z, uintptr_t kept, uintptr_t gates, uintptr_t weight, size_t steps, size_t lanes,
         size_t size, uintptr_t d_z, uintptr_t into_gates) {
        const nb::gil_scoped_release released;
        AddingCells{steps, lanes, size}.backward(at<const float*>(d_cells), at<const float*>(z),
                                                 at<const float*>(kept), at<const float*>(gates),
                                                 at<const float*>(weight), at<float*>(d_z), at<float*>(into_gates));
      },
      nb::arg("d_cells"), nb::arg("z"), nb::arg("kept"), nb::arg("gates"), nb::arg("weight"), nb::arg("steps"),
      nb::arg("lanes"), nb::arg("size"), nb::arg("d_z"), nb::arg("into_gates"),
      "Gradients of what went into such cells, and into their gates.");
  module.def(
      "redistribute",
      [](uintptr_t contribution, uintptr_t reward, uintptr_t first, uintptr_t terminated, uintptr_t valid,
         size_t steps, size_t lanes, float quality, uintptr_t earned, uintptr_t handed_out, uintptr_t qualities,
         uintptr_t redistributed, uintptr_t of_step) {
        Redistribution{steps,
                       lanes,
                       at<const float*>(contribution),
                       at<const float*>(reward),
                       at<const bool*>(first),
                       at<const bool*>(terminated),
                       at<const bool*>(valid)}
            .run(quality, {at<double*>(earned), at<double*>(handed_out), at<float*>(qualities)},
                 at<float*>(redistributed), at<float*>(of_step));
      },
      nb::arg("contribution"), nb::arg("reward"), nb::arg("first"), nb::arg("terminated"), nb::arg("valid"),
      nb::arg("steps"), nb::arg("lanes"), nb::arg("quality"), nb::arg("earned"), nb::arg("handed_out"),
      nb::arg("qualities"), nb::arg("redistributed"), nb::arg("of_step"),
      "Redistribute the rewards of a chunk of each lane, and bring its account up to date.");
}

}  // namespace penstock
