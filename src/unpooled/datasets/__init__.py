"""Data sets of the experiments: generators, shifts, and readers of published tables in the folder UNPOOLED_DATA.

- `classification`: synthetic clients with their own inputs and labelling rules
- `shift`: clients with other labels, inputs or concepts, made from any data set; `corruptions` of images and tables
- `shared`: published tables; `encoder`: features of images from a pretrained network
"""
