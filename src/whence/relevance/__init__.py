"""relevance: backward passes by rule (LRP, AttnLRP, DeepLIFT), and the head masks of Mask-LRP."""
