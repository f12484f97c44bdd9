"""What /proc/cpuinfo says of processors."""

from __future__ import annotations

PROCESSORS = {
    "x86": "processor\t: 0\nmodel\t\t: 85\nflags\t\t: sse2 avx512f\n\nprocessor\t: 1\nflags\t\t: sse2 avx512f\n",
    "x86 without AVX-512": "processor\t: 0\nmodel\t\t: 85\nflags\t\t: sse2\n",
    "an x86 of another model": "processor\t: 0\nmodel\t\t: 86\nflags\t\t: sse2\n",
    "ARM": "processor\t: 0\nFeatures\t: fp asimd sve\nCPU part\t: 0xd40\n",
    "ARM without SVE": "processor\t: 0\nFeatures\t: fp asimd\nCPU part\t: 0xd40\n",
    "ARM of another part": "processor\t: 0\nFeatures\t: fp asimd\nCPU part\t: 0xd0c\n",
}
