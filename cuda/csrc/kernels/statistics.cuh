// Statistics of a tensor's elements, taken from the words of the fingerprint's own read.
#ifndef OPGUARD_KERNELS_STATISTICS_CUH
#define OPGUARD_KERNELS_STATISTICS_CUH

#include "elements.cuh"
#include "platform.cuh"
#include "words.cuh"

namespace opguard {

// Sums of some elements. Merging is not associative in the last bits of the two sums, so every
// merge of a launch has its place. 32 bits count the elements of one thread or block.
struct Moments {
  double minimum, maximum, sum, squares;
  u64 nans, infinities, zeros;

  OPGUARD_DEVICE_MEMBER static Moments none();

  OPGUARD_DEVICE_MEMBER void merge(const Moments& other) {
    minimum = other.minimum < minimum ? other.minimum : minimum;
    maximum = other.maximum > maximum ? other.maximum : maximum;
    sum += other.sum;
    squares += other.squares;
    nans += other.nans;
    infinities += other.infinities;
    zeros += other.zeros;
  }

  OPGUARD_DEVICE_MEMBER Moments from_lane(u32 lanes) const {
    Moments other;
    other.minimum = shuffle_xor(minimum, lanes);
    other.maximum = shuffle_xor(maximum, lanes);
    other.sum = shuffle_xor(sum, lanes);
    other.squares = shuffle_xor(squares, lanes);
    other.nans = shuffle_xor(nans, lanes);
    other.infinities = shuffle_xor(infinities, lanes);
    other.zeros = shuffle_xor(zeros, lanes);
    return other;
  }
};

OPGUARD_DEVICE double infinity() { return double_of_words(0, 0x7FF00000u); }

OPGUARD_DEVICE_MEMBER Moments Moments::none() {
  return {infinity(), -infinity(), 0.0, 0.0, 0, 0, 0};
}

// What one thread gathers, in the element's own width where that is exact.
template <class Element>
struct Gathered {
  typedef typename Element::Value Value;
  Value minimum = static_cast<Value>(infinity());
  Value maximum = static_cast<Value>(-infinity());
  double sum = 0, squares = 0;
  u32 nans = 0, infinities = 0, zeros = 0;

  OPGUARD_DEVICE_MEMBER void add(Value value) {
    const bool number = value == value;
    const bool finite = value - value == 0;  // infinity minus itself is NaN
    nans += !number;
    infinities += number && !finite;
    zeros += value == 0;
    if (finite) {
      minimum = value < minimum ? value : minimum;
      maximum = value > maximum ? value : maximum;
      const double wide = static_cast<double>(value);
      sum += wide;
      squares = fma(wide, wide, squares);
    }
  }

  OPGUARD_DEVICE_MEMBER Moments moments() const {
    return {static_cast<double>(minimum), static_cast<double>(maximum), sum, squares,
            u64{nans}, u64{infinities}, u64{zeros}};
  }
};

// Elements of at most four bytes lie in words. One of eight belongs to the word with its low half,
// which has an even index; the tensor starts at a multiple of eight, so a unit holds whole ones.
template <class Element>
struct ElementStatistics {
  Gathered<Element> gathered;

  OPGUARD_DEVICE_MEMBER void unit(const u32 (&words)[4]) {
    if constexpr (Element::kBytes == 8) {
      gathered.add(double_of_words(words[0], words[1]));
      gathered.add(double_of_words(words[2], words[3]));
    } else {
#pragma unroll
      for (u32 k = 0; k < 4; ++k) whole_word(words[k]);
    }
  }

  OPGUARD_DEVICE_MEMBER void edge(const Bytes& tensor, u32 word, u64 index) {
    if constexpr (Element::kBytes == 8) {
      if (index % 2 == 0) gathered.add(double_of_words(word, read_word(tensor, index + 1)));
    } else {
      const u64 left = tensor.size - 4 * index;
#pragma unroll
      for (u32 k = 0; k < 4 / Element::kBytes; ++k) {
        if (k * Element::kBytes < left) gathered.add(Element::value(word, k));
      }
    }
  }

 private:
  OPGUARD_DEVICE_MEMBER void whole_word(u32 word) {
    if constexpr (Element::kBytes <= 4) {
#pragma unroll
      for (u32 k = 0; k < 4 / Element::kBytes; ++k) gathered.add(Element::value(word, k));
    }
  }
};

struct NoStatistics {
  OPGUARD_DEVICE_MEMBER void unit(const u32 (&)[4]) {}
  OPGUARD_DEVICE_MEMBER void edge(const Bytes&, u32, u64) {}
};

}  // namespace opguard
#endif
